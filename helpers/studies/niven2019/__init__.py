"""Probing Neural Network Comprehension of Arguments (Niven and Kao, 2019): notebook 09."""

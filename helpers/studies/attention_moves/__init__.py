"""What attention moves (Kobayashi et al. 2020; Abnar and Zuidema 2020): notebook 10."""

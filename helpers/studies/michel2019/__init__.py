"""Are Sixteen Heads Really Better than One? (Michel et al., 2019): notebook 08."""

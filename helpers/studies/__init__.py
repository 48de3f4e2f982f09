"""Other papers, each in a guest room; the rooms below do not know them."""

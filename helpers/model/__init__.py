"""A Hugging Face encoder, and what is done to its inside."""

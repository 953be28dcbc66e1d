"""Teachers and students of Hugging Face, and chats as their data. Needs the extra `hf`."""

"""This project against CTranslate2 on a CPU: the engine alone, and the server under load."""

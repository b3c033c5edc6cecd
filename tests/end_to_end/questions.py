"""What the server is asked."""

from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from tests.checkpoints import flores

TEXTS = [english for english, _ in flores()[200:224]]

ENDLESS = DecodingOptions(num_beams=8, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER)
"""With such a prize on length, a search goes on until it has all the tokens a target can have: for seconds."""

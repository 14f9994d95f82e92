"""The route table in the memory of one worker: what reads are answered from, and how it is kept current."""

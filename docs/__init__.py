"""What users read, and generate.py, which writes the parts that can be read off the code."""

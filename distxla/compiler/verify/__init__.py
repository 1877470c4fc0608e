"""The rules of a verified module, and the parts of HLO that this version cannot execute."""

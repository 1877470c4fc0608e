"""HLO text: lexer, parser and printer."""

"""HLO text: `parser.parse_module` reads it, `printer.print_module` writes it. Names no opcode but the async ones."""

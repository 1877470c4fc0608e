"""HLO text: `parser.parse_module` reads it, `printer.print_module` writes it. Knows no opcode by name but async ones."""

"""Reading: tables, notes, text, pictures and the page. Imports analysis, records and the ground."""

"""What a scenario's file may say: the fields of each part, as a JSON schema for editors, and as tables for documentation and completion."""

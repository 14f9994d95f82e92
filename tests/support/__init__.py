"""What tests start: stores of every kind, a proxy that breaks things. Real processes, no mocks."""

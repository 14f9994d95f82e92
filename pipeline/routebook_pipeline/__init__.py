"""What did the fleet do? The change stream of Routebook, kept in a lake and asked with Spark."""

"""The remoting protocol from the client's side: requests to other name servers, and notifications to brokers."""

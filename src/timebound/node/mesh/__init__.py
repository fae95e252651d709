"""The mesh on a network: connections that this broker opens to its neighbours."""

"""The search for an order of communication of all programs. Entry: scheduler/communication_order.py."""

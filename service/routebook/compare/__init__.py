"""What two name servers say, side by side. `asking` collects what one says, `differences` compares, `comparison` does
both, twice: fleets change while they are looked at.
"""

"""The tests, in folders that mirror the packages; `support` is what several of them share."""

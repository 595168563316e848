"""The pages: HTML made here from what the API functions answer, so that page and API never disagree.

In: a request of a browser. Out: a page in the visitor's language, deep-linkable by its address alone.
"""

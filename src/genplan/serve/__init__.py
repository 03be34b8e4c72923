"""The page where one edits a maze and watches a plan take shape (`genplan serve`)."""

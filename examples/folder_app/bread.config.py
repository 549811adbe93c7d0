"""What bread reads of this app. BREAD_STORE and the like in the environment beat what is here."""

from bread import Config

config = Config(store="sqlite:///.bread/bread.db", entrypoints=("greeter",))

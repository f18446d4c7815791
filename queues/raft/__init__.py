"""The sans-IO multi-Raft core: messages, time and completions in; `Ready` out. See core.Raft."""

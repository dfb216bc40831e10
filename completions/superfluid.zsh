#compdef superfluid

_superfluid_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _SUPERFLUID_COMPLETE=complete_zsh superfluid)
}

compdef _superfluid_completion superfluid

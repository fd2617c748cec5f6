curl -fsSO {base}/developers/{program} && echo '{sha256}  {program}' | sha256sum -c &&
  mkdir -p ~/.local/bin && install {program} ~/.local/bin/integrity
export PATH="$HOME/.local/bin:$PATH"

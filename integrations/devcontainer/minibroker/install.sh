#!/usr/bin/env bash
# Installs the feature while an image of a development container is built, as root. PACKAGE and SETTINGS are its options.
set -o nounset -o errexit
home=${HOME_OF_FEATURE:-/usr/local/share/minibroker}
mkdir -p "$home"
minibroker=$(command -v minibroker || true)
if [[ -z $minibroker ]]; then
    python3 -m venv "$home/venv"
    "$home/venv/bin/python" -m pip install --quiet "$PACKAGE"
    minibroker=$home/venv/bin/minibroker
fi

words=()
for setting in ${SETTINGS-}; do
    words+=(--set "$setting")
done
# The entry point of the container: the broker in the background, and then the container's own command.
cat > "$home/start" << END
#!/usr/bin/env bash
data=\${TMPDIR:-/tmp}/minibroker
mkdir -p "\$data"
nohup $minibroker serve --set "log.dirs=\$data/data" --ready-file "\$data/ready" ${words[*]@Q} < /dev/null > "\$data/log" 2>&1 &
exec "\$@"
END
chmod 755 "$home/start"

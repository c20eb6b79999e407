# What runs goes on with the new version. Nothing is started or enabled.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    @SYSTEMCTL@ try-restart @RESTARTED@ || true
fi

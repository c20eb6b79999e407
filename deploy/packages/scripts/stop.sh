if [ -d /run/systemd/system ]; then
    @SYSTEMCTL@ stop @STOPPED@ || true
fi

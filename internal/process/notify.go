package process

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// reportState notifies the service manager (sd_notify(3)) until ctx ends. It sends
// the numbers of attachments and publishes when an event changed them, and
// watchdog notifications. counts waits for the daemon's current work: its return
// shows that the daemon is alive.
func reportState(ctx context.Context, log *slog.Logger, events <-chan struct{},
	counts func() (attachments, publishes int)) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	var alive <-chan time.Time
	if limit := watchdog(); limit > 0 {
		ticker := time.NewTicker(limit / 2) // as sd_watchdog_enabled(3) recommends
		defer ticker.Stop()
		alive = ticker.C
	}
	last := ""
	for {
		life := ""
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-alive:
			life = "WATCHDOG=1\n"
		}
		attachments, publishes := counts()
		status := fmt.Sprintf("STATUS=%d attachments, %d publishes", attachments, publishes)
		if life != "" || status != last {
			warn(log, notify(life+status))
		}
		last = status
	}
}

func warn(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("notify the service manager", "error", err)
	}
}

// watchdog returns the service manager's watchdog timeout, or 0 if there is none.
func watchdog() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || usec <= 0 {
		return 0
	}
	return time.Duration(usec) * time.Microsecond
}

// notify sends a state to the service manager. Without a service manager it does
// nothing. A socket name that begins with @ is in the abstract namespace; package net
// supports this.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", path, err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

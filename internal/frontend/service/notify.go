package service

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// reportState tells the service manager that started us (sd_notify(3)) what the daemon
// holds, whenever there are news and it is otherwise, and that it lives, until
// ctx ends. Held waits for what the daemon is at, so that its answer is a sign
// of life.
func reportState(ctx context.Context, log *slog.Logger, events <-chan struct{}, inUse func() (attachments, publishes int)) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	var alive <-chan time.Time
	if limit := watchdog(); limit > 0 {
		ticker := time.NewTicker(limit / 2) // as sd_watchdog_enabled(3) asks
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
		attachments, publishes := inUse()
		status := fmt.Sprintf("STATUS=%d attachments, %d publishes", attachments, publishes)
		if life != "" || status != last {
			warn(log, notify(life+status))
		}
		last = status
	}
}

func warn(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("tell the service manager", "error", err)
	}
}

// watchdog returns the time within which the service manager wants a sign of
// life, 0 if it wants none.
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

// notify tells the service manager; without one it does nothing. A name that
// begins with @ is in the abstract namespace, which package net knows.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

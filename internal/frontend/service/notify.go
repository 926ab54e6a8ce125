package service

import (
	"fmt"
	"net"
	"os"
)

// notify tells the service manager (sd_notify(3)); without one it does
// nothing.
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

// Package docker_test runs containers of real Docker engines on our networks,
// the daemon beside them as users have it.
package docker_test

import "testing"

// TestPublished reaches a container as its users do.
func TestPublished(t *testing.T) {
	h := newHost(t, programs(t), "")
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.0.0/24", "--ipv6", "--subnet", "fd00:30::/64", "net")
	h.docker("run", "-d", "--name", "web", "--network", "net", "-p", "8080:80", "program", "serve", "tcp:80")
	if from := h.asks(lan, "tcp", hostAddr+":8080"); from != lanAddr {
		t.Errorf("the LAN is seen as %s", from)
	}
	h.asks("", "tcp", "127.0.0.1:8080")
	h.asks("", "tcp", "[::1]:8080")
	h.docker("run", "--rm", "--network", "net", "program", "ask", "tcp", "web:80")
	h.docker("rm", "-f", "web")
	h.docker("network", "rm", "net")
}

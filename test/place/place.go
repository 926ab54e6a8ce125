// Package place runs the clients and servers of tests inside network namespaces. Package kerneltest
// creates the namespaces.
package place

import (
	"net"
	"time"
)

// Place runs a function on a thread inside a network namespace, as netns.Namespace.Do does.
type Place func(func() error) error

// Timeout is how long tests wait for an event that must happen. It is long because the machine may
// have other load, and because only a failing test waits for all of it. A test that concludes from
// silence that no answer will come needs a shorter time.
const Timeout = time.Minute

// Dial opens a connection from the place. With UDP it only connects a socket.
func Dial(from Place, network, addr string, timeout time.Duration) (conn net.Conn, err error) {
	err = from(func() (err error) {
		conn, err = net.DialTimeout(network, addr, timeout)
		return err
	})
	return conn, err
}

package agent

import (
	"net"
	"sync"
)

// generator is a load generator on another machine: its control channel, whose end is
// its own end.
type generator struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

// Close closes the control channel.
func (g *generator) Close() (err error) {
	g.once.Do(func() {
		err = g.Conn.Close()
		close(g.done)
	})
	return err
}

// PID implements load.Child. The process is in no ledger of this machine.
func (g *generator) PID() int { return 0 }

// Done implements load.Child.
func (g *generator) Done() <-chan struct{} { return g.done }

// Wait implements load.Child. The agent reports no error of the process.
func (g *generator) Wait() error {
	<-g.done
	return nil
}

// Kill implements load.Child.
func (g *generator) Kill() error { return g.Close() }

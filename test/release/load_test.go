package release_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/test/place"
)

// pause is the time between two requests of a load.
const pause = 20 * time.Millisecond

// load asks at one port of a machine: on a connection that stays open, and on new connections.
type load struct {
	network, addr, want string
	in                  place.Place
	answers, came       atomic.Int64
	lost                atomic.Pointer[error]
}

func (l *load) String() string { return l.addr + "/" + l.network }

// start starts the load, which continues until ctx ends or something is lost.
func (l *load) start(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() {
		l.repeat(ctx, &l.came, func(word string) error {
			conn, err := place.Dial(l.in, l.network, l.addr, place.Timeout)
			if err != nil {
				return err
			}
			defer conn.Close()
			return l.ask(conn, word)
		})
	})
	running.Go(func() {
		conn, err := place.Dial(l.in, l.network, l.addr, place.Timeout)
		if err != nil {
			l.lost.Store(&err)
			return
		}
		defer conn.Close()
		l.repeat(ctx, &l.answers, func(word string) error { return l.ask(conn, word) })
	})
}

func (l *load) repeat(ctx context.Context, count *atomic.Int64, ask func(word string) error) {
	for n := 0; ctx.Err() == nil; n++ {
		if err := ask(fmt.Sprint("word-", n)); err != nil {
			err = fmt.Errorf("%s: request %d: %w", l, n, err)
			l.lost.Store(&err)
			return
		}
		count.Add(1)
		time.Sleep(pause)
	}
}

// ask sends a word, and expects it behind the server's name. It never repeats a request.
func (l *load) ask(conn net.Conn, word string) error {
	if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, word); err != nil {
		return err
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(buf[:n])); got != l.want+" "+word {
		return fmt.Errorf("%q answers, want %q", got, l.want)
	}
	return nil
}

// awaitExchanges waits until each load has made more exchanges on both kinds of connections.
func awaitExchanges(t *testing.T, loads []*load) {
	t.Helper()
	const more = 10
	for _, l := range loads {
		answers, came := l.answers.Load()+more, l.came.Load()+more
		for end := time.Now().Add(commandLimit); l.answers.Load() < answers || l.came.Load() < came; {
			if err := l.lost.Load(); err != nil {
				t.Fatal(*err)
			}
			if time.Now().After(end) {
				t.Fatalf("%s: no progress in %v", l, commandLimit)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

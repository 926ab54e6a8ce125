package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/alarm"

	"github.com/google/go-cmp/cmp"
)

// server is a network with a DHCP server, with simulated time (synctest). It
// records each request and its time, and answers as the test wants.
type server struct {
	begin   time.Time
	log     []string
	acquire func(n int) (grant, error)
	extend  func(n int) (grant, error)
	asked   [2]int
	// suspended is for how long the host was suspended.
	suspended time.Duration
}

func (f fake) now() time.Time { return time.Now().Add(f.suspended) }

type fake struct{ *server }

func (f fake) note(what string) {
	f.log = append(f.log, fmt.Sprintf("%v %s", time.Since(f.begin), what))
}

func (f fake) acquire(context.Context) (grant, error) {
	f.note("acquire")
	f.asked[0]++
	return f.server.acquire(f.asked[0])
}

func (f fake) extend(_ context.Context, _ grant, anyServer bool) (grant, error) {
	f.note(map[bool]string{false: "renew", true: "rebind"}[anyServer])
	f.asked[1]++
	return f.server.extend(f.asked[1])
}

func (f fake) release(g grant) error {
	f.note("release " + g.Prefixes[0].String())
	return nil
}

// lease returns a lease of one hour that starts now.
func lease(address string) grant {
	now := time.Now()
	return grant{Lease: Lease{Prefixes: []netip.Prefix{netip.MustParsePrefix(address)},
		Renew: now.Add(30 * time.Minute), Rebind: now.Add(52 * time.Minute), Expires: now.Add(time.Hour)}}
}

const (
	one = "192.0.2.1/24"
	two = "192.0.2.2/24"
)

func always(address string) func(int) (grant, error) {
	return func(int) (grant, error) { return lease(address), nil }
}

func never(err error) func(int) (grant, error) {
	return func(int) (grant, error) { return grant{}, err }
}

func TestHold(t *testing.T) {
	for name, s := range map[string]struct {
		server server
		lasts  time.Duration
		last   netip.Addr
		// ends is when the lease of last ends; 0 means never.
		ends time.Duration
		// once means that the client does not go on asking.
		once  bool
		want  string
		err   error
		words string
	}{
		"a lease is renewed at half its time, and released": {
			server: server{acquire: always(one), extend: always(one)}, lasts: 70 * time.Minute,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew|30m0s got 192.0.2.1/24|1h0m0s renew|1h0m0s got 192.0.2.1/24|1h10m0s release 192.0.2.1/24",
		},
		"another address is reported as a new lease": {
			server: server{acquire: always(one), extend: always(two)}, lasts: 40 * time.Minute,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew|30m0s got 192.0.2.2/24|40m0s release 192.0.2.2/24",
		},
		"without an answer: renew ever sooner, then ask any server, then acquire": {
			server: server{acquire: always(one), extend: never(ErrNoServer)}, lasts: 61 * time.Minute,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew|41m0s renew|46m30s renew|49m15s renew|50m37.5s renew|51m37.5s renew|" +
				"52m0s rebind|56m0s rebind|58m0s rebind|59m0s rebind|1h0m0s lost|1h0m0s acquire|1h0m0s got 192.0.2.1/24|1h1m0s release 192.0.2.1/24",
		},
		"after a refusal, acquire at once": {
			server: server{acquire: always(one), extend: never(errRefused)}, lasts: 31 * time.Minute,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew|30m0s lost|30m0s acquire|30m0s got 192.0.2.1/24|31m0s release 192.0.2.1/24",
		},
		"after a loss, the pauses grow": {
			server: server{extend: never(errRefused), acquire: func(n int) (grant, error) {
				if n == 1 {
					return lease(one), nil
				}
				return grant{}, ErrNoServer
			}}, lasts: 50 * time.Minute,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew|30m0s lost|30m0s acquire|30m10s acquire|30m30s acquire|31m10s acquire|" +
				"32m30s acquire|35m10s acquire|40m10s acquire|45m10s acquire",
		},
		"no first lease": {
			server: server{acquire: never(ErrNoServer)}, lasts: time.Hour, once: true,
			want: "0s acquire", err: ErrNoServer,
			words: "check that the network behind the link (parent, VLAN, bridge) has one, or give an address",
		},
		"no first lease, and the client goes on": {
			server: server{extend: always(one), acquire: func(n int) (grant, error) {
				if n < 4 {
					return grant{}, ErrNoServer
				}
				return lease(one), nil
			}}, lasts: 20 * time.Minute,
			want: "0s acquire|0s failed|0s acquire|10s acquire|30s acquire|30s got 192.0.2.1/24|20m0s release 192.0.2.1/24",
		},
		"no server after a restart": {
			server: server{extend: always(one), acquire: func(n int) (grant, error) {
				if n < 3 {
					return grant{}, ErrNoServer
				}
				return lease(one), nil
			}}, lasts: 20 * time.Minute, last: netip.MustParseAddr("192.0.2.1"),
			want: "0s acquire|0s failed|0s acquire|10s acquire|10s got 192.0.2.1/24|20m0s release 192.0.2.1/24",
		},
		"no server after a restart, and the lease ends": {
			server: server{extend: always(one), acquire: func(n int) (grant, error) {
				if n < 5 {
					return grant{}, ErrNoServer
				}
				return lease(one), nil
			}}, lasts: 20 * time.Minute, last: netip.MustParseAddr("192.0.2.1"), ends: 25 * time.Second,
			want: "0s acquire|0s failed|0s acquire|10s acquire|25s lost|30s acquire|1m10s acquire|1m10s got 192.0.2.1/24|" +
				"20m0s release 192.0.2.1/24",
		},
		"no server after a restart, and the lease ends during the first exchange": {
			server: server{extend: always(one), acquire: func(n int) (grant, error) {
				if n < 3 {
					time.Sleep(15 * time.Second)
					return grant{}, ErrNoServer
				}
				return lease(one), nil
			}}, lasts: 20 * time.Minute, last: netip.MustParseAddr("192.0.2.1"), ends: 5 * time.Second,
			want: "0s acquire|15s failed|15s lost|15s acquire|40s acquire|40s got 192.0.2.1/24|20m0s release 192.0.2.1/24",
		},
		"a server after a restart, before the lease ends": {
			server: server{extend: always(one), acquire: func(n int) (grant, error) {
				if n < 3 {
					return grant{}, ErrNoServer
				}
				return lease(one), nil
			}}, lasts: 20 * time.Minute, last: netip.MustParseAddr("192.0.2.1"), ends: 25 * time.Second,
			want: "0s acquire|0s failed|0s acquire|10s acquire|10s got 192.0.2.1/24|20m0s release 192.0.2.1/24",
		},
		"the address is in use after a restart": {
			server: server{extend: always(two), acquire: func(n int) (grant, error) {
				if n <= tries+1 {
					return grant{}, errConflict
				}
				return lease(two), nil
			}}, lasts: 20 * time.Minute, last: netip.MustParseAddr("192.0.2.1"), ends: 5 * time.Second,
			want: "0s acquire|0s acquire|0s acquire|0s failed|0s lost|0s acquire|10s acquire|10s got 192.0.2.2/24|" +
				"20m0s release 192.0.2.2/24",
		},
		"every address is in use": {
			server: server{acquire: never(errConflict)}, lasts: time.Hour, once: true,
			want: "0s acquire|0s acquire|0s acquire", err: errConflict, words: "shrink the range",
		},
		"the sandbox ends": {
			server: server{acquire: always(one), extend: never(ErrGone)}, lasts: time.Hour,
			want: "0s acquire|0s got 192.0.2.1/24|30m0s renew", err: ErrGone,
		},
		"an infinite lease": {
			server: server{acquire: func(int) (grant, error) {
				return grant{Lease: Lease{Prefixes: lease(one).Prefixes}}, nil
			}}, lasts: 1000 * time.Hour,
			want: "0s acquire|0s got 192.0.2.1/24|1000h0m0s release 192.0.2.1/24",
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fake{&s.server}
				f.begin = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), s.lasts)
				defer cancel()
				c := Config{Last: s.last, Failed: func(error) { f.note("failed") }}
				if s.ends > 0 {
					c.Ends = f.begin.Add(s.ends)
				}
				if s.once {
					c.Failed = nil
				}
				err := maintain(ctx, f, c, func(l Lease) {
					if l.IsZero() {
						f.note("lost")
					} else {
						f.note("got " + l.Prefixes[0].String())
					}
				})
				if !errors.Is(err, s.err) || err != nil && !strings.Contains(err.Error(), s.words) {
					t.Errorf("got error %v, want %v with %q", err, s.err, s.words)
				}
				if diff := cmp.Diff(strings.Split(s.want, "|"), f.log); diff != "" {
					t.Errorf("want (-), got (+):\n%s", diff)
				}
			})
		})
	}
}

// TestSuspended suspends the host until a lease has ended. The address is given back soon after, and a lease requested.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{&server{begin: time.Now()}}
		f.server.acquire = func(int) (grant, error) {
			g := lease(one)
			for _, at := range []*time.Time{&g.Renew, &g.Rebind, &g.Expires} {
				*at = at.Add(f.suspended)
			}
			return g, nil
		}
		f.server.extend = f.server.acquire
		ctx, cancel := context.WithCancel(t.Context())
		var lost, got []time.Duration
		ended := make(chan error, 1)
		go func() {
			ended <- maintain(ctx, f, Config{}, func(l Lease) {
				if l.IsZero() {
					lost = append(lost, time.Since(f.begin))
				} else {
					got = append(got, time.Since(f.begin))
				}
			})
		}()
		time.Sleep(10 * time.Minute) // of the bubble's clock
		synctest.Wait()
		f.suspended = 3 * time.Hour // the clock of the bubble stands meanwhile
		time.Sleep(2 * alarm.Longest)
		synctest.Wait()
		if len(lost) != 1 || len(got) != 2 || lost[0] > 10*time.Minute+alarm.Longest {
			t.Errorf("the lease is lost after %v and the host gets one after %v", lost, got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestNextEnds checks that for any times of a lease there is a pause between the
// attempts to renew it, and that it expires.
func TestNextEnds(t *testing.T) {
	begin := time.Unix(1e9, 0)
	for _, lasts := range []time.Duration{time.Second, 2 * time.Minute, time.Hour, 1000 * time.Hour} {
		l := Lease{Prefixes: []netip.Prefix{netip.MustParsePrefix(one)},
			Renew: begin.Add(lasts / 2), Rebind: begin.Add(lasts * 7 / 8), Expires: begin.Add(lasts)}
		var tried time.Time
		var all []time.Time
		for how := renew; how != expire; {
			var at time.Time
			at, how = l.next(tried)
			if n := len(all); n > 0 && at.Sub(all[n-1]) < leastPause && at != l.Rebind && at != l.Expires {
				t.Errorf("lease time %v: the next attempt follows after only %v", lasts, at.Sub(all[n-1]))
			}
			tried = at
			all = append(all, at)
		}
		if !slices.IsSortedFunc(all, time.Time.Compare) || all[len(all)-1] != l.Expires || len(all) > 40 {
			t.Errorf("lease time %v: the attempts are at %v", lasts, all)
		}
	}
}

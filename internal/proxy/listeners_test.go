package proxy

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// TestListenersAreCountedSeparately sends known traffic through one of two
// listeners.
func TestListenersAreCountedSeparately(t *testing.T) {
	p := newProxy(t, Role)
	stream, datagrams := serveTCP(t, "127.0.0.1", echo), serveUDP(t, "127.0.0.1:0", echoUDP)
	one, idle := oneTCP("127.0.0.1", 7101, stream), oneTCP("127.0.0.1", 7102, stream)
	udp := oneUDP("127.0.0.1", 7103, datagrams)
	set(t, p, Config{Listeners: []plan.Listener{one.Listeners[0], idle.Listeners[0], udp.Listeners[0]}})
	for range 3 {
		exchange(t, dial(t, "127.0.0.1:7101"), "hello")
	}
	ask(t, dialUDP(t, "127.0.0.1:7103"), "what", "what")
	until(t, p, "all is counted", func(s model.ProxyStats) bool { return s.BytesOut == 3*5+4 })
	all, err := p.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[plan.Listener]model.ProxyStats{}
	for _, s := range all {
		got[s.Listener] = s.ProxyStats
	}
	want := map[plan.Listener]model.ProxyStats{
		one.Listeners[0]:  {BytesIn: 15, BytesOut: 15, Accepted: 3, Connections: 3},
		idle.Listeners[0]: {},
		udp.Listeners[0]:  {BytesIn: 4, BytesOut: 4, DatagramsIn: 1, DatagramsOut: 1, Opened: 1, Flows: 1},
	}
	for l, s := range want {
		if got[l] != s {
			t.Errorf("%s port %s: %+v, want %+v", l.Proto, l.Ports, got[l], s)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d listeners are counted, want %d", len(all), len(want))
	}
}

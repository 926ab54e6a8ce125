package etcd

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"

	"fairlead/test/place"
)

// calls finds the line of a method in the metrics of etcd.
var calls = regexp.MustCompile(`grpc_server_started_total\{grpc_method="(\w+)".*\} (\S+)`)

// Requests returns how often clients have called each method of the member.
func (m *Member) Requests() map[string]float64 {
	m.t.Helper()
	client := http.Client{Timeout: place.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			return place.Dial(m.In, "tcp", address, place.Timeout)
		}}}
	r, err := client.Get(m.Endpoint() + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, line := range calls.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			m.t.Fatal(err)
		}
		all[line[1]] += n
	}
	return all
}

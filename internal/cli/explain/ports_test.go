package explain

import (
	"errors"
	"testing"

	"fairlead/internal/cli/command"
	"fairlead/internal/explain/ports"
	"fairlead/internal/model"
)

// TestUnused: the error for a port that nothing uses names the protocol that was asked for, and says that the
// other one uses the port.
func TestUnused(t *testing.T) {
	web := []ports.Port{{Proto: model.TCP, Ports: model.Port(80)}}
	for _, c := range []struct {
		all    []ports.Port
		port   string
		proto  model.Proto
		unseen []string
		want   string
	}{
		{nil, "80", "", nil, "port 80 is not in use: no socket listens there, and no rule or program forwards it"},
		{nil, "80", model.UDP, nil,
			"port 80/udp is not in use: no UDP socket is bound there, and no rule or program forwards it"},
		{web, "80", model.UDP, nil,
			"port 80/udp is not in use: no UDP socket is bound there, and no rule or program forwards it. It is in use over TCP"},
		{web, "81", model.UDP, nil,
			"port 81/udp is not in use: no UDP socket is bound there, and no rule or program forwards it"},
		{web, "79-80", model.UDP, []string{"rules"},
			"whether port 79-80/udp is in use is unknown: what was examined does not use it. It is in use over TCP"},
	} {
		err := unused(portList{Unseen: c.unseen}, c.all, c.port, c.proto)
		if err.Error() != c.want || errors.As(err, new(command.Exit)) != (c.unseen != nil) {
			t.Errorf("%s/%s: %v, want %q", c.port, c.proto, err, c.want)
		}
	}
}

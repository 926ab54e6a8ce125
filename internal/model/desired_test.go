package model_test

import (
	"fmt"
	"strings"
	"testing"

	"fairlead/internal/model"
)

func TestSetPublishes(t *testing.T) {
	publish := func(attachment string, host, own uint16, by model.Origin) model.Publish {
		return model.Publish{Endpoint: attachment, Proto: model.TCP, HostPorts: model.Port(host),
			Ports: model.Port(own), Origin: by}
	}
	files := model.FileSet("x")
	w := model.Desired{Publishes: []model.Publish{
		publish("web", 1, 80, files), publish("db", 2, 80, files), publish("web", 3, 80, model.FromCommand),
		publish("web", 4, 80, files),
	}}
	text := func(w model.Desired) string {
		var all []string
		for _, p := range w.Publishes {
			all = append(all, fmt.Sprintf("%s %s:%s %s", p.Endpoint, p.HostPorts, p.Ports, p.Origin))
		}
		return strings.Join(all, ", ")
	}
	before := text(w)
	for _, c := range []struct {
		name, want string
		set        []model.Publish
	}{
		{"none", fmt.Sprintf("db 2:80 %s, web 3:80 %s", files, model.FromCommand), nil},
		{"the same", before, []model.Publish{publish("", 4, 80, ""), publish("", 1, 80, "")}},
		{"one changed, one new, one removed",
			fmt.Sprintf("db 2:80 %s, web 3:80 %s, web 4:81 %s, web 5:80 %s", files, model.FromCommand, files, files),
			[]model.Publish{publish("", 5, 80, ""), publish("", 4, 81, "")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(w.SetPublishes("web", files, c.set)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if got := text(w); got != before {
				t.Errorf("the original is now %s", got)
			}
		})
	}
}

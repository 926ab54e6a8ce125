package traefik

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairlead/internal/model/gateway"
)

// samples are a text and the value that it decodes to, by the type in testdata/labels.txt.
var samples = map[string]struct {
	text string
	want any
}{
	"bool":     {"true", true},
	"string":   {"some text", "some text"},
	"int":      {"7", int64(7)},
	"duration": {"3", 3 * time.Second},
	"list":     {"a, b", []string{"a", "b"}},
}

// TestEveryLabel decodes each label that Traefik has, alone, and finds its value in the
// field of its name.
func TestEveryLabel(t *testing.T) {
	text, err := os.ReadFile("testdata/labels.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		count++
		cells := strings.Split(strings.TrimSpace(line), "\t")
		t.Run(cells[0], func(t *testing.T) { checkLabel(t, cells[0], cells[1]) })
	}
	if count < 260 {
		t.Errorf("testdata/labels.txt has %d labels, want 260", count)
	}
}

func checkLabel(t *testing.T, key, kind string) {
	sample, ok := samples[kind]
	if !ok {
		t.Fatalf("no sample of type %q", kind)
	}
	if strings.HasSuffix(key, "loadbalancer.server.port") {
		sample.text, sample.want = "8080", "8080"
	}
	label := "traefik." + strings.NewReplacer(".N.", ".my-name.", ".NAME", ".X-Name", "PLUGIN", "geo", "[n]", "[3]").
		Replace(key)
	r := &reporter{source: "container c", provider: "docker"}
	root := r.labelTree(map[string]string{label: sample.text})
	settings, config := r.decodeSettings(root), r.decodeLabels(root)
	if len(r.problems) > 0 {
		t.Fatalf("problems: %v", r.problems)
	}
	v := reflect.ValueOf(config)
	if first, _, _ := strings.Cut(key, "."); first == "enable" || first == "docker" || first == "swarm" {
		v = reflect.ValueOf(settings)
	}
	got := at(t, v, strings.Split(strings.TrimPrefix(label, "traefik."), "."))
	if diff := cmp.Diff(sample.want, got); diff != "" {
		t.Error(diff)
	}
}

// at returns the value at a path of names below v. A pointer to a struct at its end
// counts as true.
func at(t *testing.T, v reflect.Value, names []string) any {
	t.Helper()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			t.Fatalf("nothing is decoded at %v", names)
		}
		if len(names) == 0 && v.Elem().Kind() == reflect.Struct {
			return true
		}
		return at(t, v.Elem(), names)
	}
	if len(names) == 0 {
		switch {
		case v.Type() == reflect.TypeFor[time.Duration]():
			return v.Interface()
		case v.CanInt():
			return v.Int()
		}
		return v.Interface()
	}
	name, _, _ := strings.Cut(names[0], "[")
	switch v.Kind() {
	case reflect.Map:
		return at(t, v.MapIndex(reflect.ValueOf(name)), names[1:])
	case reflect.Slice:
		return at(t, v.Index(0), names)
	}
	f := v.FieldByNameFunc(func(s string) bool {
		return strings.EqualFold(s, name) || name == "server" && s == "Servers"
	})
	if !f.IsValid() {
		t.Fatalf("%s has no field %q", v.Type(), name)
	}
	return at(t, f, names[1:])
}

// TestLabelsThatAreNotInEffect checks the problem of each label that is left out.
func TestLabelsThatAreNotInEffect(t *testing.T) {
	for label, want := range map[string]string{
		"Traefik.http.routers.a.rule": `label Traefik.http.routers.a.rule is ignored: write "traefik" in lower case`,
		"traefik.enabled": "label traefik.enabled is ignored: " +
			`the key "enabled" is not known: the nearest one is "enable"`,
		"traefik.htpp.routers.a.rule": "label traefik.htpp is ignored: " +
			`the key "htpp" is not known: the nearest one is "http"`,
		"traefik.frontend.rule": "label traefik.frontend is ignored: it is one of Traefik v1; write " +
			"traefik.http.routers.NAME.rule and traefik.http.services.NAME.loadbalancer.server.port",
		"traefik.network": "label traefik.network is ignored: write traefik.docker.network",
		"traefik.http.router.a.rule": "traefik.http.router: " +
			`the key "router" is not known: the nearest one is "routers"`,
		"traefik.tls.options.a.minversion": "label traefik.tls.options is ignored: there is no such label; " +
			"write it to a file of the file provider, and refer to it with NAME@file",
		"traefik.http.services.a.weighted.services[0].name": "label traefik.http.services.a.weighted is ignored: " +
			"there is no such label; write it to a file of the file provider, and refer to it with NAME@file",
		"traefik.http.routers..rule": "traefik.http.routers..rule: a name between two dots is empty: " +
			"remove the dot that is too much",
	} {
		r := &reporter{source: "container c", provider: "docker"}
		root := r.labelTree(map[string]string{label: "1", "traefik.http.routers.good.rule": "r", "other": "x"})
		c := r.decodeLabels(root)
		if len(r.problems) == 0 || r.problems[0].Text != want {
			t.Errorf("%s: problems %+v, want %q", label, r.problems, want)
		}
		if diff := cmp.Diff(map[string]*gateway.Router{"good": {Rule: "r"}}, c.HTTP.Routers); diff != "" {
			t.Errorf("%s: the other label is lost: %s", label, diff)
		}
	}
}

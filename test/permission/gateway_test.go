package permission_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cluster/gateways"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/serving"
	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/hosted"
)

// settable are the fields of objects of a gateway that JSON and files can set.
func settable(reflect.StructField) bool { return false }

// section is a map of objects in a configuration, such as http.routers.
type section struct {
	name string
	of   func(*values.Config) reflect.Value
}

// sections returns all sections with names: the fields of Config, and the maps in them.
func sections() (all []section) {
	t := reflect.TypeFor[values.Config]()
	for i := range t.NumField() {
		part := t.Field(i)
		if part.Type.Kind() != reflect.Struct {
			continue // Renamed: the provider sets it, and neither records nor labels have it
		}
		for j := range part.Type.NumField() {
			if f := part.Type.Field(j); f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Pointer {
				in := func(c *values.Config) reflect.Value { return reflect.ValueOf(c).Elem().Field(i).Field(j) }
				all = append(all, section{strings.ToLower(part.Name + "." + f.Name), in})
			}
		}
	}
	return all
}

// object is an object of which one field is set to an attempt.
type object struct {
	section section
	name    string
	field   field
	attempt any
	value   reflect.Value // a pointer
}

// objects returns an object for each attempt at each field of all sections.
func objects(c *canaries) (all []object) {
	for _, s := range sections() {
		t := s.of(new(values.Config)).Type().Elem().Elem()
		for _, f := range fieldsOf(t, settable) {
			full := s.name + "." + f.path
			for _, attempt := range attempts(f.kind, c.path(full)) {
				o := object{s, fmt.Sprint("o", len(all)), f, attempt, reflect.New(t)}
				f.in(o.value.Elem(), set(attempt))
				complete(o.value.Interface())
				all = append(all, o)
			}
		}
	}
	return all
}

// complete sets what an object needs so that the other fields are read.
func complete(v any) {
	switch m := v.(type) {
	case *values.Middleware:
		if f := m.ForwardAuth; f != nil && f.Address == "" {
			f.Address = "http://192.0.2.7/"
		}
	}
}

// build gives a gateway a configuration as a process does: it reads the files that the configuration names, and
// builds what serves clients.
func build(t *testing.T, c values.Config) {
	t.Helper()
	read, known := serving.Resolve(&c, nil)
	static := values.Static{EntryPoints: []values.EntryPoint{{Name: "web", Address: ":80"}}}
	if _, err := gateway.Checking(static, read, known); err != nil {
		t.Error(err)
	}
}

// TestFilesOfAnAdministrator puts the attempts in a configuration as an administrator's file does. It shows that
// the test notices each file that the gateway reads, and that exactly the fields with the tag "file" name files.
func TestFilesOfAnAdministrator(t *testing.T) {
	c := newCanaries(t)
	all := objects(c)
	c.watch()
	var want []string
	for _, o := range all {
		config := values.Config{}
		m := o.section.of(&config)
		m.Set(reflect.MakeMap(m.Type()))
		m.SetMapIndex(reflect.ValueOf(o.name), o.value)
		if len(values.Files(o.value.Interface())) > 0 && !strings.Contains(o.field.path, "Redis") { // Redis is refused
			want = append(want, o.section.name+"."+o.field.path)
		}
		build(t, config)
	}
	slices.Sort(want)
	if got := c.touched(); !slices.Equal(got, want) || len(got) < 14 {
		t.Errorf("the gateway has read\n%q, and these have the tag:\n%q", got, want)
	}
}

// TestRecordsOfAGateway writes a record of a cluster for each attempt at each field of each object, and an object
// with the path as its name.
func TestRecordsOfAGateway(t *testing.T) {
	c := newCanaries(t)
	var entries []kv.Entry
	put := func(key string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, kv.Entry{Key: key, Revision: 1,
			Value: record.Encode(record.GatewayObject{Spec: text})})
	}
	for _, o := range objects(c) {
		put(record.Key(record.Gateway, o.section.name, o.name), o.value.Interface())
		put(record.Key(record.Gateway, o.section.name, c.path(o.section.name+" as a name")), o.value.Interface())
	}
	c.watch()
	got, _ := gateways.NewDeriver("a", hosted.SizeOfExpressions).Derive(kv.NewTable(1, entries))
	config := traefik.QualifiedAs("cluster", got.Config)
	if len(config.HTTP.Middlewares) < 100 || len(got.Problems) < 10 {
		t.Errorf("%d middlewares and %d problems: the records were not read", len(config.HTTP.Middlewares),
			len(got.Problems))
	}
	build(t, config)
	if all := c.touched(); len(all) > 0 {
		t.Errorf("records have made the host open the files in %q", all)
	}
}

// TestLabels writes a label for each attempt at each field of each object, of one container each, so that a label
// with a mistake disables no other one.
func TestLabels(t *testing.T) {
	c := newCanaries(t)
	var all []*traefik.Container
	add := func(key, value string) {
		id := fmt.Sprint("c", len(all))
		all = append(all, &traefik.Container{ID: id, Name: id, Running: true, ExposedPorts: []traefik.Port{{Number: 80,
			Protocol: "tcp"}}, NetworkMode: "host", Labels: map[string]string{"traefik.enable": "true", key: value,
			"traefik.http.middlewares." + id + ".forwardauth.address": "http://192.0.2.7/"}})
	}
	for _, o := range objects(c) {
		at := strings.ReplaceAll(strings.ToLower(o.field.path), ".[0]", "[0]")
		name := o.name
		if strings.Contains(at, "forwardauth") {
			name = fmt.Sprint("c", len(all)) // it has an address
		}
		add("traefik."+o.section.name+"."+name+"."+at, fmt.Sprint(o.attempt))
	}
	for _, key := range []string{"tls.certificates[0].certfile", "docker.network", "swarm.network"} {
		add("traefik."+key, c.path(key))
	}
	c.watch()
	config, problems := traefik.NewDocker(traefik.DockerOptions{}).Config(all)
	if len(config.HTTP.Middlewares) < 100 || len(problems) < 100 {
		t.Errorf("%d middlewares and %d problems: the labels were not read", len(config.HTTP.Middlewares), len(problems))
	}
	build(t, config)
	if touched := c.touched(); len(touched) > 0 {
		t.Errorf("labels have made the gateway open the files in %q", touched)
	}
}

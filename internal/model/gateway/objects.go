package gateway

import "iter"

// Objects are the objects of one kind in a configuration, by name. Values are pointers to objects of the kind.
type Objects interface {
	// Kind is the kind as in the states of objects, e.g. "TCP router".
	Kind() string
	// Section is where files have the objects, e.g. "tcp.routers".
	Section() string
	All() iter.Seq2[string, any]
	// Get returns nil if no object has the name.
	Get(name string) any
	Put(name string, value any)
	// New returns an empty object, which is not among the others.
	New() any
	Rename(to func(name string) string)
}

// Objects returns the objects of all kinds, in the same order for each configuration.
func (c *Config) Objects() []Objects {
	return []Objects{
		objects[Router]{"router", "http.routers", &c.HTTP.Routers},
		objects[Service]{"service", "http.services", &c.HTTP.Services},
		objects[Middleware]{"middleware", "http.middlewares", &c.HTTP.Middlewares},
		objects[ServersTransport]{"transport", "http.serverstransports", &c.HTTP.ServersTransports},
		objects[TCPRouter]{"TCP router", "tcp.routers", &c.TCP.Routers},
		objects[TCPService]{"TCP service", "tcp.services", &c.TCP.Services},
		objects[TCPMiddleware]{"TCP middleware", "tcp.middlewares", &c.TCP.Middlewares},
		objects[TCPServersTransport]{"TCP transport", "tcp.serverstransports", &c.TCP.ServersTransports},
		objects[UDPRouter]{"UDP router", "udp.routers", &c.UDP.Routers},
		objects[UDPService]{"UDP service", "udp.services", &c.UDP.Services},
		objects[TLSOptions]{"tls options", "tls.options", &c.TLS.Options},
		objects[Store]{"tls store", "tls.stores", &c.TLS.Stores},
	}
}

type objects[T any] struct {
	kind, section string
	at            *map[string]*T
}

func (o objects[T]) Kind() string    { return o.kind }
func (o objects[T]) Section() string { return o.section }
func (o objects[T]) New() any        { return new(T) }

func (o objects[T]) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for name, value := range *o.at {
			if !yield(name, value) {
				return
			}
		}
	}
}

func (o objects[T]) Get(name string) any {
	if value := (*o.at)[name]; value != nil {
		return value
	}
	return nil
}

func (o objects[T]) Put(name string, value any) {
	if *o.at == nil {
		*o.at = map[string]*T{}
	}
	(*o.at)[name] = value.(*T)
}

func (o objects[T]) Rename(to func(name string) string) {
	if *o.at == nil {
		return
	}
	renamed := make(map[string]*T, len(*o.at))
	for name, value := range *o.at {
		renamed[to(name)] = value
	}
	*o.at = renamed
}

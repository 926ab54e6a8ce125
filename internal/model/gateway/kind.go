package gateway

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Middlewares returns the names of all kinds of middlewares. Plugins are not among them: the program loads none.
func Middlewares() (names []string) {
	all := reflect.TypeFor[Middleware]()
	for i := range all.NumField() {
		if f := all.Field(i); f.Type.Kind() == reflect.Pointer {
			names = append(names, strings.ToLower(f.Name))
		}
	}
	return names
}

// OneKind returns an error for a middleware or a service, as a pointer, that is not exactly one of its kinds.
// Other objects have no kinds.
func OneKind(v any) error {
	switch v.(type) {
	case *Middleware, *TCPMiddleware, *Service, *TCPService, *UDPService:
	default:
		return nil
	}
	var kinds, known []string
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		name := strings.ToLower(s.Type().Field(i).Name)
		if s.Field(i).Kind() == reflect.Slice {
			continue
		}
		known = append(known, name)
		if !s.Field(i).IsZero() {
			kinds = append(kinds, name)
		}
	}
	switch len(kinds) {
	case 1:
		return nil
	case 0:
		return errors.New("it has no kind: want one of " + strings.Join(known, ", "))
	}
	return fmt.Errorf("it has several kinds, %s: give each its own name", strings.Join(kinds, " and "))
}

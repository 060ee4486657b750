// Swagger UI, which FastAPIOffline serves at /static-offline-docs.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  showExtensions: true,
  showCommonExtensions: true,
});

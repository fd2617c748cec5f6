using System;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Security.Cryptography;
using System.Text;

public static class First
{
    public static int Main()
    {
        var document = Encoding.UTF8.GetBytes("The final bytes of a document.\n");
        var hash = BitConverter.ToString(SHA256.Create().ComputeHash(document));
        var declaration = "{"
            + $@"""companyReference"": ""{Environment.GetEnvironmentVariable("INTEGRITY_COMPANY")}"","
            + $@"""source"": ""quick-start"", ""documentReference"": ""document-{Guid.NewGuid()}"", ""version"": 1,"
            + $@"""sha256"": ""{hash.Replace("-", "").ToLowerInvariant()}"", ""sizeBytes"": {document.Length},"
            + $@"""mimeType"": ""text/plain"", ""generatedAt"": ""{DateTime.UtcNow:s}Z"""
            + "}";
        File.WriteAllBytes("document.txt", document);
        File.WriteAllText("declaration.json", declaration);
        var client = new HttpClient { Timeout = TimeSpan.FromMinutes(1) };
        client.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue(
            "Bearer", Environment.GetEnvironmentVariable("INTEGRITY_API_KEY"));
        var response = client.PostAsync(
            Environment.GetEnvironmentVariable("INTEGRITY_BASE_URL") + "/api/v1/integrity/records",
            new StringContent(declaration, Encoding.UTF8, "application/json")).Result;
        var record = response.Content.ReadAsStringAsync().Result;
        Console.WriteLine(record);
        if (!response.IsSuccessStatusCode) return 1;
        File.WriteAllText("record.json", record);
        return 0;
    }
}
